"""A stand-in for Claude Code with a model inside: the lines it writes and the transcript it keeps are of the same form.

What the model does is written in what it is asked, as with the API in `anthropic.py`; it goes on from `HOLD` when there
is a file `released` in its folder. `test_claude_code_for_real.py` has both do the same.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

ARGUMENTS = sys.argv[1:]
USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 17}
MODEL = "stub-1"


def given(flag: str) -> str | None:
    return ARGUMENTS[ARGUMENTS.index(flag) + 1] if flag in ARGUMENTS else None


def tell(kind: str, **values: object) -> None:
    print(json.dumps({"type": kind, **values}), flush=True)


def file_of(session: str) -> Path:
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ["HOME"], ".claude"))
    folder = config / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{session}.jsonl"


class Session:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.entries: list[dict[str, Any]] = []
        if file.exists():
            self.entries = [json.loads(line) for line in file.read_text().splitlines()]
        self.known = {entry["uuid"] for entry in self.entries}
        if at := given("--resume-session-at"):
            places = [number for number, entry in enumerate(self.entries) if entry["uuid"] == at]
            self.entries = self.entries[: places[0] + 1]

    def add(self, kind: str, uuid: str, **message: object) -> None:
        entry = {"type": kind, "uuid": uuid, "message": message}
        self.entries.append(entry)
        with self.file.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    @property
    def heard(self) -> list[str]:
        said = [entry["message"]["content"] for entry in self.entries if entry["type"] == "user"]
        return [block["text"] for content in said for block in content]


def answer(session: Session, uuid: str, content: list[dict[str, str]]) -> None:
    if uuid in session.known:
        tell("command_lifecycle", command_uuid=uuid, state="completed")
        return
    for state in ("queued", "started"):
        tell("command_lifecycle", command_uuid=uuid, state=state)
    session.add("user", uuid, role="user", content=content)
    last = session.heard[-1]
    if error := re.search(r"ERR:(\d+)", last):
        fail(session, int(error[1]))
    else:
        speak(session, last)
    tell("command_lifecycle", command_uuid=uuid, state="cancelled" if error else "completed")


def fail(session: Session, status: int) -> None:
    text = f"API Error: {status} fake {status}"
    session.add(
        "assistant", str(uuid4()), id=str(uuid4()), model="<synthetic>", content=[{"type": "text", "text": text}]
    )
    errors = {"api_error_status": status, "terminal_reason": "api_error"}
    tell("result", subtype="success", is_error=True, result=text, num_turns=1, usage={}, **errors)
    sys.exit(1)


def speak(session: Session, last: str) -> None:
    text = f"I heard {json.dumps(session.heard, ensure_ascii=False)}"
    half = len(text) // 2
    tell("stream_event", event={"type": "message_start", "message": {}}, parent_tool_use_id=None)
    for number, piece in enumerate((text[:half], text[half:])):
        delta = {"type": "text_delta", "text": piece}
        tell("stream_event", event={"type": "content_block_delta", "delta": delta}, parent_tool_use_id=None)
        while number == 0 and "HOLD" in last and not Path("released").exists():
            time.sleep(0.01)
    blocks = [{"type": "text", "text": text}]
    message = {"id": f"msg_{uuid4()}", "model": MODEL, "content": blocks, "stop_reason": "end_turn", "usage": USAGE}
    session.add("assistant", str(uuid4()), **message)
    tell("assistant", message=message, parent_tool_use_id=None)
    counts = {re.sub(r"_(.)", lambda found: found[1].upper(), key): count for key, count in USAGE.items()}
    done = {"result": text, "num_turns": 1, "usage": USAGE, "model_usage_since_last_result": {MODEL: counts}}
    tell("result", subtype="success", is_error=False, terminal_reason="completed", **done)


def main() -> None:
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    resumed, begun = given("--resume"), given("--session-id")
    file = file_of(str(resumed or begun))
    if resumed and not file.exists():
        error = f"No conversation found with session ID: {resumed}"
        tell("result", subtype="error_during_execution", is_error=True, num_turns=0, errors=[error])
        sys.exit(error)
    if begun and file.exists():
        sys.exit(f"Error: Session ID {begun} is already in use.")
    session = Session(file)
    for line in sys.stdin:
        said = json.loads(line)
        assert said["client_composed"] is True
        answer(session, said["uuid"], said["message"]["content"])


if __name__ == "__main__":
    main()
