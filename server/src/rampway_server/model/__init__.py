"""Models: files in, a `Runner` and a `Tokenizer` out; it knows no requests and no HTTP.

Importing this package imports neither torch nor the model's vocabulary.
"""

from rampway_server.model.contract import LoadedModel, LoadOptions, ModelFileInfo
from rampway_server.model.loading import inspect, load

__all__ = ["LoadOptions", "LoadedModel", "ModelFileInfo", "inspect", "load"]
