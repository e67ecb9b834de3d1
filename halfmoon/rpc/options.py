"""Channel arguments that both ends must agree on."""

from halfmoon.config import DEADLINES, MAX_MESSAGE_BYTES

ChannelOptions = tuple[tuple[str, int | str], ...]

KEEPALIVE_MS = 10_000
"""A silent connection is probed this often."""

KEEPALIVE_TIMEOUT_MS = 5_000
"""A probe without an answer for this long breaks the connection."""

_COMMON: ChannelOptions = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: ChannelOptions = (
    *_COMMON,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)

CLIENT_OPTIONS: ChannelOptions = (
    *_COMMON,
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # gRPC takes the smallest backoff as the bound of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", int(DEADLINES.connect * 1000)),
    ("grpc.max_reconnect_backoff_ms", int(DEADLINES.connect * 1000)),
)
