from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar
from typing import Optional as _Optional
from typing import Union as _Union

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers

DESCRIPTOR: _descriptor.FileDescriptor

class Value(_message.Message):
    __slots__ = ("flag", "whole", "number", "text")
    FLAG_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    flag: bool
    whole: int
    number: float
    text: str
    def __init__(self, flag: _Optional[bool] = ..., whole: _Optional[int] = ..., number: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("after", "follow")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    after: int
    follow: bool
    def __init__(self, after: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class AuditLine(_message.Message):
    __slots__ = ("number", "at_s", "decision", "event", "words")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_s: float
    decision: int
    event: str
    words: str
    def __init__(self, number: _Optional[int] = ..., at_s: _Optional[float] = ..., decision: _Optional[int] = ..., event: _Optional[str] = ..., words: _Optional[str] = ...) -> None: ...

class ProposeRequest(_message.Message):
    __slots__ = ("settings",)
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.MessageMap[str, Value]
    def __init__(self, settings: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class DecisionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("id", "at_s", "state", "kind", "before", "after", "predicted", "low", "high", "measured", "words", "contributions", "by", "of", "why", "diff")
    class BeforeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    class AfterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    class ContributionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    id: int
    at_s: float
    state: str
    kind: str
    before: _containers.MessageMap[str, Value]
    after: _containers.MessageMap[str, Value]
    predicted: float
    low: float
    high: float
    measured: float
    words: str
    contributions: _containers.ScalarMap[str, float]
    by: str
    of: int
    why: str
    diff: str
    def __init__(self, id: _Optional[int] = ..., at_s: _Optional[float] = ..., state: _Optional[str] = ..., kind: _Optional[str] = ..., before: _Optional[_Mapping[str, Value]] = ..., after: _Optional[_Mapping[str, Value]] = ..., predicted: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., measured: _Optional[float] = ..., words: _Optional[str] = ..., contributions: _Optional[_Mapping[str, float]] = ..., by: _Optional[str] = ..., of: _Optional[int] = ..., why: _Optional[str] = ..., diff: _Optional[str] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("from_s", "to_s", "most")
    FROM_S_FIELD_NUMBER: _ClassVar[int]
    TO_S_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    from_s: float
    to_s: float
    most: int
    def __init__(self, from_s: _Optional[float] = ..., to_s: _Optional[float] = ..., most: _Optional[int] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("decision", "text", "lines")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    decision: Decision
    text: str
    lines: _containers.RepeatedCompositeFieldContainer[AuditLine]
    def __init__(self, decision: _Optional[_Union[Decision, _Mapping]] = ..., text: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[AuditLine, _Mapping]]] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthReply(_message.Message):
    __slots__ = ("healthy", "words", "cluster", "mode", "at_s", "load", "waiting", "running", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    healthy: bool
    words: str
    cluster: str
    mode: str
    at_s: float
    load: float
    waiting: int
    running: int
    settings: _containers.MessageMap[str, Value]
    def __init__(self, healthy: _Optional[bool] = ..., words: _Optional[str] = ..., cluster: _Optional[str] = ..., mode: _Optional[str] = ..., at_s: _Optional[float] = ..., load: _Optional[float] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., settings: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class WhatIfRequest(_message.Message):
    __slots__ = ("knob",)
    KNOB_FIELD_NUMBER: _ClassVar[int]
    knob: str
    def __init__(self, knob: _Optional[str] = ...) -> None: ...

class WhatIfReply(_message.Message):
    __slots__ = ("rows",)
    class Row(_message.Message):
        __slots__ = ("value", "gain")
        VALUE_FIELD_NUMBER: _ClassVar[int]
        GAIN_FIELD_NUMBER: _ClassVar[int]
        value: Value
        gain: float
        def __init__(self, value: _Optional[_Union[Value, _Mapping]] = ..., gain: _Optional[float] = ...) -> None: ...
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[WhatIfReply.Row]
    def __init__(self, rows: _Optional[_Iterable[_Union[WhatIfReply.Row, _Mapping]]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("job", "kind", "at_s", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    job: str
    kind: str
    at_s: float
    attributes: _containers.MessageMap[str, Value]
    def __init__(self, job: _Optional[str] = ..., kind: _Optional[str] = ..., at_s: _Optional[float] = ..., attributes: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class RecordReply(_message.Message):
    __slots__ = ("added", "known")
    ADDED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    added: int
    known: int
    def __init__(self, added: _Optional[int] = ..., known: _Optional[int] = ...) -> None: ...
