"""Tests of the examples with a server that simulates SGLang. tests/node/serving runs them with the real one."""

import json
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
CALL = {"index": 0, "id": "c", "type": "function"}
STREAM: list[dict[str, Any]] = [
    {"role": "assistant"},
    {"reasoning_content": "15% is "},
    {"reasoning_content": "0.15"},
    {"content": "It is 36."},
    {"tool_calls": [{**CALL, "function": {"name": "get_weather", "arguments": '{"location":'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ' "Beijing"}'}}]},
]


class Server(BaseHTTPRequestHandler):
    """A server that answers every chat in the same way, and records the requests."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        """Send a stream or a single answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Server.asked.append(body)
        shared = {"id": "1", "created": 1, "model": body["model"]}
        if body.get("stream"):
            shared["object"] = "chat.completion.chunk"
            chunks = [{**shared, "choices": [{"index": 0, "delta": one}]} for one in STREAM]
            text = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
        else:
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "sunny"}}
            text = json.dumps({**shared, "object": "chat.completion", "choices": [choice]})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""


@pytest.fixture
def url() -> Iterator[str]:
    """Yield the URL at which the server listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Server.asked.clear()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def said(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs an example and returns its output. It runs in this process, because importing the client
    takes seconds.
    """
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name, value in {"OPENAI_BASE_URL": url, "NO_PROXY": "127.0.0.1", "OPENAI_MODEL": "m"}.items():
        monkeypatch.setenv(name, value)

    def run(example: str, *words: str) -> str:
        monkeypatch.setattr(sys, "argv", [example, *words])
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_reasoning_and_answer_are_streamed_separately(said: Callable[..., str]) -> None:
    lines = [line.strip("= ") for line in said("thinking.py").splitlines()]
    assert lines == ["", "Thinking", "15% is 0.15", "Content", "It is 36."]
    assert Server.asked[0]["model"] == "m"


def test_streamed_tool_call_is_assembled(said: Callable[..., str]) -> None:
    text = said("tool_call.py")
    assert 'Tool call: get_weather\n  Arguments: {"location": "Beijing"}' in text
    assert "tool_choice" not in Server.asked[0]
    said("tool_call.py", "--force")
    assert Server.asked[1]["tool_choice"]["function"]["name"] == "get_weather"
    assert Server.asked[1]["tools"][0]["function"]["strict"] is True


def test_tool_example_returns_result_to_model(said: Callable[..., str]) -> None:
    assert said("tool_result.py") == "sunny\n"
    assert [one["role"] for one in Server.asked[0]["messages"]] == ["user", "assistant", "tool"]
    assert "22°C" in Server.asked[0]["messages"][2]["content"]


def test_chat_example_sends_prompt_and_model(said: Callable[..., str]) -> None:
    assert said("chat.py", "Hi", "--model", "other") == "sunny\n"
    assert (Server.asked[0]["messages"][0]["content"], Server.asked[0]["model"]) == ("Hi", "other")
