"""Everything the engine raises on purpose. The command line catches the root.

EngineError
├── ConfigError       a setting is unknown, out of range or contradicts another
├── ModelError        a model cannot be found, read or understood
├── RequestError      a request can never be served as it stands
└── EngineStopped     the engine has ended; nothing more is accepted
"""


class EngineError(Exception):
    """Its text is one line: what, where, what to do."""


class ConfigError(EngineError):
    pass


class ModelError(EngineError):
    pass


class RequestError(EngineError):
    pass


class EngineStopped(EngineError):
    pass
