"""The HTTP front: OpenAI's and SGLang's routes over the engine; it knows no tensors."""
