"""Between the router's view of workers and the messages of router.proto."""

from halfmoon.errors import InvalidRequestError
from halfmoon.v1 import router_pb2 as pb
from halfmoon.wire import geometry_from_pb, geometry_to_pb
from router.fleet import CacheChange
from router.worker import Load, Role, State, Worker, WorkerDescription

_ROLES: dict["pb.WorkerRole.ValueType", Role] = {
    pb.WORKER_ROLE_PREFILL: Role.PREFILL,
    pb.WORKER_ROLE_DECODE: Role.DECODE,
    pb.WORKER_ROLE_BOTH: Role.BOTH,
}
_STATES: dict["pb.WorkerState.ValueType", State] = {
    pb.WORKER_STATE_STARTING: State.STARTING,
    pb.WORKER_STATE_READY: State.READY,
    pb.WORKER_STATE_DRAINING: State.DRAINING,
    pb.WORKER_STATE_STOPPED: State.STOPPED,
}
_ROLES_TO_PB = {role: number for number, role in _ROLES.items()}
_STATES_TO_PB = {state: number for number, state in _STATES.items()}


def description_from_pb(info: pb.WorkerInfo) -> WorkerDescription:
    """Raises InvalidRequestError when the role is not given."""
    role = _ROLES.get(info.role)
    if role is None:
        raise InvalidRequestError(f"worker {info.worker_id} gives no role", param="role")
    return WorkerDescription(
        worker_id=info.worker_id,
        incarnation=info.incarnation,
        address=info.address,
        role=role,
        fingerprint=info.model_fingerprint,
        geometry=geometry_from_pb(info.geometry),
        max_model_len=info.max_model_len,
        kv_endpoint=info.kv_endpoint,
    )


def state_from_pb(number: "pb.WorkerState.ValueType") -> State:
    """Raises InvalidRequestError when the state is not given."""
    state = _STATES.get(number)
    if state is None:
        raise InvalidRequestError("the report gives no state", param="state")
    return state


def load_from_pb(load: pb.WorkerLoad) -> Load:
    """A reported load."""
    return Load(
        running=load.requests_running,
        waiting=load.requests_waiting,
        pages_total=load.pages_total,
        pages_free=load.pages_free,
        prefill_tokens_queued=load.prefill_tokens_queued,
    )


def cache_from_pb(request: pb.HeartbeatRequest) -> CacheChange | None:
    """The heartbeat's prefix-cache delta; None when it has none."""
    if not request.HasField("cache"):
        return None
    delta = request.cache
    return CacheChange(delta.sequence, delta.snapshot, delta.stored, delta.removed)


def status_to_pb(worker: Worker, now: float) -> pb.WorkerStatus:
    """A worker as `ListWorkers` shows it: its load as last reported."""
    description, load = worker.description, worker.load
    return pb.WorkerStatus(
        info=pb.WorkerInfo(
            worker_id=description.worker_id,
            incarnation=description.incarnation,
            address=description.address,
            role=_ROLES_TO_PB[description.role],
            model_fingerprint=description.fingerprint,
            geometry=geometry_to_pb(description.geometry),
            state=_STATES_TO_PB[worker.state],
            max_model_len=description.max_model_len,
            kv_endpoint=description.kv_endpoint,
        ),
        load=pb.WorkerLoad(
            requests_running=load.running,
            requests_waiting=load.waiting,
            pages_total=load.pages_total,
            pages_free=load.pages_free,
            prefill_tokens_queued=load.prefill_tokens_queued,
        ),
        last_seen_ms=max(0, round((now - worker.last_seen) * 1000)),
    )
