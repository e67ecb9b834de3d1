"""A progress that tests look into."""


class Recorder:
    """Remembers everything it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.notes: list[str] = []

    def advance(self, label: str, done: int, total: int) -> None:
        self.calls.append((label, done, total))

    def note(self, message: str) -> None:
        self.notes.append(message)
