; How XLA calls a kernel, and how the kernel's chunks are shared among the threads of XLA's pool.
;
; The structures are those of xla/ffi/api/c_api.h, version 0.3. A kernel is two functions: how many chunks of work a call
; has, and one chunk of it. Chunks are drawn from a counter, so a thread that comes late only leaves less to the others;
; a thread that comes when all is drawn must not look at the call, which may be over: it touches its %work alone.

%version = type { i64, ptr, i32, i32 }                      ; size, extensions, major, minor
%metadata = type { i64, %version }                          ; size, version
%extension = type { i64, i32, ptr, ptr }                    ; size, type, next, metadata
%buffer = type { i64, ptr, i32, ptr, i64, ptr }             ; size, extensions, dtype, data, rank, dims
%list = type { i64, ptr, i64, ptr, ptr }                    ; size, extensions, count, types, items
%frame = type { i64, ptr, ptr, ptr, i32, %list, %list }     ; size, extensions, api, context, stage, arguments, results
%api = type { i64, ptr, %version, ptr, [11 x ptr], ptr, ptr } ; size, extensions, version, internal, ..., schedule, threads
%schedule = type { i64, ptr, ptr, ptr, ptr }                ; size, extensions, context, task, its argument
%threads = type { i64, ptr, ptr, ptr }                      ; size, extensions, context, where to write the number
%work = type { i64, i64, i64, i64, ptr }                    ; chunks drawn, done, users of this, chunks, frame

declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare i64 @chunks(ptr)
declare void @kernel(ptr, i64)

define ptr @argument(ptr %frame, i64 %index) alwaysinline {
  %items.at = getelementptr %frame, ptr %frame, i32 0, i32 5, i32 4
  %items = load ptr, ptr %items.at
  %item.at = getelementptr ptr, ptr %items, i64 %index
  %item = load ptr, ptr %item.at
  ret ptr %item
}

define ptr @result(ptr %frame, i64 %index) alwaysinline {
  %items.at = getelementptr %frame, ptr %frame, i32 0, i32 6, i32 4
  %items = load ptr, ptr %items.at
  %item.at = getelementptr ptr, ptr %items, i64 %index
  %item = load ptr, ptr %item.at
  ret ptr %item
}

define ptr @data(ptr %buffer) alwaysinline {
  %at = getelementptr %buffer, ptr %buffer, i32 0, i32 3
  %data = load ptr, ptr %at
  ret ptr %data
}

define i64 @dim(ptr %buffer, i64 %axis) alwaysinline {
  %dims.at = getelementptr %buffer, ptr %buffer, i32 0, i32 5
  %dims = load ptr, ptr %dims.at
  %dim.at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim.at
  ret i64 %dim
}

define ptr @HANDLER(ptr %frame) {
  %extension.at = getelementptr %frame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %extended = icmp ne ptr %extension, null
  br i1 %extended, label %asked, label %called

asked:
  %metadata.at = getelementptr %extension, ptr %extension, i32 0, i32 3
  %metadata = load ptr, ptr %metadata.at
  %major = getelementptr %metadata, ptr %metadata, i32 0, i32 1, i32 2
  store i32 0, ptr %major
  %minor = getelementptr %metadata, ptr %metadata, i32 0, i32 1, i32 3
  store i32 3, ptr %minor
  ret ptr null

called:
  %chunks = call i64 @chunks(ptr %frame)
  %small = icmp sle i64 %chunks, 1
  br i1 %small, label %alone, label %shared

alone:
  call void @kernel(ptr %frame, i64 0)
  ret ptr null

shared:
  %threads = call i64 @threads(ptr %frame)
  %users = call i64 @llvm.smin.i64(i64 %threads, i64 %chunks)
  %work = call ptr @malloc(i64 40)
  %done.at = getelementptr %work, ptr %work, i32 0, i32 1
  %users.at = getelementptr %work, ptr %work, i32 0, i32 2
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 3
  %frame.at = getelementptr %work, ptr %work, i32 0, i32 4
  store i64 0, ptr %work
  store i64 0, ptr %done.at
  store i64 %users, ptr %users.at
  store i64 %chunks, ptr %chunks.at
  store ptr %frame, ptr %frame.at
  br label %call_helper

call_helper:
  %called_helpers = phi i64 [ 1, %shared ], [ %next, %called_helper ]
  %enough = icmp sge i64 %called_helpers, %users
  br i1 %enough, label %work_too, label %called_helper

called_helper:
  call void @schedule(ptr %frame, ptr %work)
  %next = add i64 %called_helpers, 1
  br label %call_helper

work_too:
  call void @draw(ptr %work)
  br label %look

look:
  %done = load atomic i64, ptr %done.at acquire, align 8
  %complete = icmp eq i64 %done, %chunks
  br i1 %complete, label %over, label %wait

wait:
  %ignored = call i32 @sched_yield()
  br label %look

over:
  call void @leave(ptr %work)
  ret ptr null
}

define internal void @help(ptr %work) {
  call void @draw(ptr %work)
  call void @leave(ptr %work)
  ret void
}

define internal void @draw(ptr %work) {
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 3
  %chunks = load i64, ptr %chunks.at
  %frame.at = getelementptr %work, ptr %work, i32 0, i32 4
  %frame = load ptr, ptr %frame.at
  %done.at = getelementptr %work, ptr %work, i32 0, i32 1
  br label %draw_one

draw_one:
  %chunk = atomicrmw add ptr %work, i64 1 monotonic
  %left = icmp slt i64 %chunk, %chunks
  br i1 %left, label %compute, label %none_left

compute:
  call void @kernel(ptr %frame, i64 %chunk)
  %ignored = atomicrmw add ptr %done.at, i64 1 release
  br label %draw_one

none_left:
  ret void
}

define internal void @leave(ptr %work) {
  %users.at = getelementptr %work, ptr %work, i32 0, i32 2
  %users = atomicrmw sub ptr %users.at, i64 1 acq_rel
  %last = icmp eq i64 %users, 1
  br i1 %last, label %release, label %end

release:
  call void @free(ptr %work)
  br label %end

end:
  ret void
}

define internal i64 @threads(ptr %frame) {
  %count = alloca i64
  store i64 1, ptr %count
  %context = call ptr @context(ptr %frame)
  %api = call ptr @api(ptr %frame)
  %function.at = getelementptr %api, ptr %api, i32 0, i32 6
  %function = load ptr, ptr %function.at
  %request = alloca %threads
  store %threads { i64 32, ptr null, ptr null, ptr null }, ptr %request
  %context.at = getelementptr %threads, ptr %request, i32 0, i32 2
  store ptr %context, ptr %context.at
  %count.at = getelementptr %threads, ptr %request, i32 0, i32 3
  store ptr %count, ptr %count.at
  %error = call ptr %function(ptr %request)
  %failed = icmp ne ptr %error, null
  %number = load i64, ptr %count
  %result = select i1 %failed, i64 1, i64 %number
  ret i64 %result
}

define internal void @schedule(ptr %frame, ptr %work) {
  %context = call ptr @context(ptr %frame)
  %api = call ptr @api(ptr %frame)
  %function.at = getelementptr %api, ptr %api, i32 0, i32 5
  %function = load ptr, ptr %function.at
  %request = alloca %schedule
  store %schedule { i64 40, ptr null, ptr null, ptr @help, ptr null }, ptr %request
  %context.at = getelementptr %schedule, ptr %request, i32 0, i32 2
  store ptr %context, ptr %context.at
  %work.at = getelementptr %schedule, ptr %request, i32 0, i32 4
  store ptr %work, ptr %work.at
  %error = call ptr %function(ptr %request)
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %refused, label %end

refused:
  call void @leave(ptr %work)
  br label %end

end:
  ret void
}

define internal ptr @api(ptr %frame) alwaysinline {
  %at = getelementptr %frame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %at
  ret ptr %api
}

define internal ptr @context(ptr %frame) alwaysinline {
  %at = getelementptr %frame, ptr %frame, i32 0, i32 3
  %context = load ptr, ptr %at
  ret ptr %context
}

declare i64 @llvm.smin.i64(i64, i64)
