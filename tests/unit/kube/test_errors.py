"""Tests of the meaning of the API server's status codes."""

from ome_operator.kube import errors


def answered(code: int, message: str) -> errors.KubeError:
    return errors.from_response(code, {"kind": "Status", "message": message})


def test_an_object_of_another_shape_is_not_tried_again_though_the_code_is_500() -> None:
    """An error with the code 500 about an object of the wrong form is not retried, unlike other errors with this code, such
    as that about a webhook that is down. The API server answers with such an error if an applied object has an unknown
    field.
    """
    said = (
        "failed to create typed patch object (team/a; apps/v1, Kind=StatefulSet): .spec.template.spec.minReplica: field not "
        "declared in schema"
    )
    assert isinstance(answered(500, said), errors.Invalid)
    assert isinstance(answered(500, "failed calling webhook"), errors.ServerError)
    assert isinstance(answered(503, "the server is starting"), errors.ServerError)
