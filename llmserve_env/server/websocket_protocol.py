"""uvicorn's WebSocket protocol, for clients that wait for each answer as agents do: same frames, fewer detours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

EXTENSION = "llmserve.direct"
"""Where an application finds the protocol of its connection, among the extensions of the scope."""


class DirectProtocol(WebSocketsSansIOProtocol):
    """Lets the application answer a message where it arrives, and stops reading only when a client runs ahead."""

    answer: Callable[[bytes], bytes | None] | None = None
    """Set by the application; it must be quick, and None leaves the message to the application's loop."""
    _is_awaited = False

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[EXTENSION] = self

    def handle_text(self, event: Frame) -> None:
        answer = self.answer(bytes(event.data)) if self.answer and event.fin and self._is_idle() else None
        if answer is None:
            super().handle_text(event)
            return
        self.conn.send_text(answer)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def _is_idle(self) -> bool:
        """Whether the application waits for a message, none is on its way to it, and the client takes its answers."""
        return self._is_awaited and self.queue.empty() and self.writable.is_set() and not self.close_sent

    async def receive(self) -> Any:
        self._is_awaited = True
        try:
            return await super().receive()
        finally:
            self._is_awaited = False

    def send_receive_event_to_app(self) -> None:
        # uvicorn stops reading at every message and starts again when it is taken: two system calls for nothing unless
        # the client is ahead. It leaves the transport alone where it believes that reading has stopped already.
        is_ahead, was_paused = not self.queue.empty(), self.read_paused
        self.read_paused = was_paused or not is_ahead
        super().send_receive_event_to_app()
        if not is_ahead:
            self.read_paused = was_paused
