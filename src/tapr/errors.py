"""Errors. Each message is one sentence that says what is wrong and what to do; each code is a short, stable name."""

from __future__ import annotations

# What programs may rely on: the code of an error, in Python, in problem+json and in the client.
CODES = {
    "failed": "A failure that the user did not cause.",
    "bad_input": "The request cannot be done as asked.",
    "bad_option": "An option has a value that it cannot have, or there is no such option.",
    "missing_option": "An option is needed beside the others.",
    "conflicting_options": "Two options exclude each other.",
    "bad_spec": "An EditSpec, or the weights in it, cannot be read.",
    "bad_records": "A record file cannot be read, or a record in it is not valid.",
    "no_record": "The record file has no record for the question.",
    "bad_queries": "A file of queries cannot be read.",
    "bad_prompt": "A prompt file cannot be used for that kind of record.",
    "bad_answer": "A language model's answer breaks the form that was asked for.",
    "bad_setting": "A setting of the environment (TAPR_...) is missing, or has a value that it cannot have.",
    "empty_edit": "The edit has no words.",
    "missing_extra": "A package that is not installed is needed: the sentence names the command that installs it.",
    "not_written": "A file cannot be written.",
    "unfit_encoder": "The encoder, or its model, lacks a part that is needed, such as a captioner or a plain ViT.",
    "other_encoder": "The vectors of the gallery were made with another encoder, or with other settings of it.",
    "no_device": "There is no such device here, or the encoder does not run on it.",
    "bad_weights": "A checkpoint, its configuration or a weight file cannot be read, or is not the one that is needed.",
    "no_weights": "A model's files are not on this machine and could not be fetched.",
    "bad_vectors": "Vectors have another shape than the one that is needed, or numbers that are not finite.",
    "bad_plugin": "A plug-in cannot be loaded, or its name is taken.",
    "damaged_gallery": "What a gallery says of itself contradicts itself: its pictures must be indexed again.",
    "bad_filter": "A filter on metadata cannot be read, or asks for what is not there.",
    "not_a_picture": "A file or an upload is no picture that can be read.",
    "too_large": "A picture has too many bytes or pixels, or a request is too long.",
    "unknown_picture": "The gallery has no such picture, or its file is gone.",
    "unknown_reference": "The server keeps no reference of that key.",
    "unknown_search": "The gallery has no saved search of that name.",
    "unknown_name": "There is no method, factorizer, encoder or dataset of that name, or it cannot be used here.",
    "no_gallery": "The folder is no gallery, or one that this version cannot read.",
    "outside_folder": "A path leads out of the folder that it must stay in, or through a link there.",
    "no_prefilter": "The gallery has no first stage: make one with tapr first-stage.",
    "key_reused": "An idempotency key came with another request before.",
    "writer_busy": "Another process is writing to the gallery.",
    "quota_exceeded": "The gallery has no room for more pictures or bytes.",
    "not_fetched": "A picture cannot be fetched from its address.",
    "no_room": "There was no memory, or no process, to decode a picture: ask again in a moment.",
    "busy": "A limit of work at one time is reached: ask again in a moment.",
    "too_slow": "The answer took too long.",
    "unavailable": "A part that the answer needs is away for now.",
    "factorizer_unavailable": "The factorizer cannot answer now.",
    "answer_too_long": "A language model's server sent more than the limit of bytes.",
    "unauthorized": "A token is needed, and none was sent.",
    "unknown_token": "The token that was sent is none of this server's.",
    "forbidden": "The token does not allow it, writing is off, or a page of another site asks.",
    "not_found": "There is nothing at that address.",
    "method_not_allowed": "The address does not know that HTTP method.",
    "wrong_host": "The request names another host.",
    "unreachable": "No answer came from the server.",
}


class TaprError(Exception):
    """A failure that the user did not cause; the command line exits with 1."""

    exit_code = 1
    code = "failed"

    def __init__(self, *args: object, code: str | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code


class BadInput(TaprError):
    """A request that cannot be done as asked; the command line exits with 2, the API answers 4xx."""

    exit_code = 2
    code = "bad_input"


class BadOption(BadInput):
    """An option has a value that it cannot have, lacks another option, or does not exist."""

    code = "bad_option"

    def __init__(self, sentence: str, option: str = "", code: str | None = None) -> None:
        super().__init__(sentence, code=code)
        self.option = option


class BadSpec(BadInput):
    """An EditSpec, or weights, that cannot be read."""

    code = "bad_spec"


class BadFilter(BadInput):
    """A filter on metadata that cannot be read, or asks for what is not there."""

    code = "bad_filter"


class UnfitEncoder(BadInput):
    """An encoder, or its model, lacks a part that is needed."""

    code = "unfit_encoder"


class BadWeights(BadInput):
    """A checkpoint or a weight file cannot be read, or is not the one that is needed."""

    code = "bad_weights"


class NoDevice(BadInput):
    """A device that is not here, or on which the encoder does not run."""

    code = "no_device"


class BadPlugin(BadInput):
    """A plug-in cannot be loaded, or its name is taken."""

    code = "bad_plugin"


class Unavailable(TaprError):
    """A part that the answer needs is away for now; the API answers 503."""

    code = "unavailable"


class NewProcessNeeded(Unavailable):
    """A process that can answer no more: `tapr serve --ray` starts a new one."""


class Overloaded(TaprError):
    """A limit of work at one time is reached: ask again in a moment; the API answers 429."""

    code = "busy"
