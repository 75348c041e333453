"""Picture files to the pixels that an encoder takes."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from tapr.encoders.base import Encoder
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Decoded, Limits, NoRoomToDecode, View, one_line
from tapr.images.workers import Decode, decode_apart


def decode_for(
    encoder: Encoder,
    data: bytes,
    more: Sequence[View] = (),
    limits: Limits = DEFAULT_LIMITS,
    decode: Decode = decode_apart,
) -> Decoded:
    """Decode a picture file: the first view is what the encoder takes, `more` follow."""
    frame = getattr(encoder, "frame", None)
    decoded = decode(data, [View(encoder.card.image_size, frame=frame), *more], limits)
    if frame is None:  # an encoder that prepares pictures in a way of its own does so in this process
        try:
            decoded.views[0] = encoder.prepare(Image.fromarray(decoded.views[0]))
        except MemoryError:
            raise NoRoomToDecode("there was not enough memory to prepare it") from None
        except Exception as error:  # whatever one picture does to an encoder is that picture's failure
            raise BadImage(f"cannot be prepared ({one_line(error)})") from None
    return decoded
