"""Bodies of requests and responses as msgspec structs: field names are those of the API."""
