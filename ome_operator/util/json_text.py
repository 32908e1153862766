"""Write JSON with msgspec, which needs less time than the standard encoder. msgspec is used only for values for which both
encoders write the same text.
"""

from typing import Any

import msgspec


def encode_like_dumps(value: Any, encoder: msgspec.json.Encoder) -> bytes | None:
    """Return the text that msgspec writes for a value; None if `json.dumps` with `separators=(",", ":")` may write another
    text.

    `json.dumps` escapes DEL and all characters beyond ASCII. msgspec refuses a lone surrogate, and a key that is not a
    string. Two differences are not detected: msgspec writes NaN and infinity as null, and writes other
    exponents. A caller whose value may contain such floats has to handle them.
    """
    try:
        text = encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return text if text.isascii() and b"\x7f" not in text else None
