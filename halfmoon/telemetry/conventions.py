"""Names of span attributes, all in one place: OpenTelemetry's semantic conventions, pinned, and Halfmoon's own."""

from typing import Final

from opentelemetry.semconv.schemas import Schemas

SCHEMA_URL: Final = Schemas.V1_44_0.value
"""The release of the semantic conventions that the names below are taken from."""

SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
ERROR_TYPE: Final = "error.type"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_ID: Final = "gen_ai.response.id"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
TOP_K: Final = "gen_ai.request.top_k"
CHOICES: Final = "gen_ai.request.choice.count"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_TOKEN: Final = "gen_ai.response.time_to_first_chunk"

CHAT: Final = "chat"
TEXT_COMPLETION: Final = "text_completion"
PROVIDER_NAME: Final = "halfmoon"
RPC_SYSTEM_NAME: Final = "grpc"

REQUEST_ID: Final = "halfmoon.request.id"
WORKER: Final = "halfmoon.worker.id"
PLAN: Final = "halfmoon.plan.reason"
PREFILL_WORKER: Final = "halfmoon.plan.prefill_worker"
DECODE_WORKER: Final = "halfmoon.plan.decode_worker"
COMPUTED_TOKENS: Final = "halfmoon.prompt.computed_tokens"
MISSING_PAGES: Final = "halfmoon.kv.missing_pages"
KV_PAGES: Final = "halfmoon.kv.pages"
KV_BYTES: Final = "halfmoon.kv.bytes"
KV_TRANSPORT: Final = "halfmoon.kv.transport"
