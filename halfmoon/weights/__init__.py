"""Reading models from disk: safetensors folders, GGUF files, the embedded default."""
