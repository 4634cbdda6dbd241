"""Which callables @app.task takes, and what it says of the others."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from stepwell import App, ConfigError

app = App()


class Mailer:
    def send(self, to: str) -> None: ...

    async def asend(self, to: str) -> None: ...

    @classmethod
    def make(cls) -> None: ...

    @staticmethod
    def check(to: str) -> str:
        return to

    @app.task
    @staticmethod
    def above(to: str) -> str:
        return to

    @staticmethod
    @app.task(process=True)
    def below(to: str) -> str:
        return to

    @app.task
    @staticmethod
    async def coroutine() -> None: ...


def ship(order_id: int) -> None: ...


@pytest.mark.parametrize(
    "method",
    [
        Mailer().send,
        Mailer.send,
        Mailer().asend,
        Mailer.make,
        vars(Mailer)["make"],
        bytearray().append,
        "".join,
        str.upper,
    ],
    ids=["bound", "unbound", "async", "class", "in the class body", "of bytes", "of a text", "of a type"],
)
def test_a_method_is_refused_with_what_to_write_instead(method: Any) -> None:
    with pytest.raises(ConfigError, match=r"is a method, .*: register a function that .* calls the method, or"):
        App().task(method)


def test_a_method_in_a_class_body_is_refused_where_it_is_decorated() -> None:
    with pytest.raises(ConfigError, match=r"'.*Shop\.close' is a method"):

        class Shop:  # pyright: ignore[reportUnusedClass]
            @app.task
            def close(self) -> None: ...


@pytest.mark.parametrize("options", [{}, {"name": "square"}])
def test_a_lambda_is_refused_with_a_name_or_without(options: Any) -> None:
    with pytest.raises(ConfigError, match="not a lambda: write 'def'"):
        App().task(**options)(lambda n: n * n)  # pyright: ignore


@pytest.mark.parametrize("given", [functools.partial(ship, 7), int, Mailer(), 7])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="takes a function, not"):
        App().task(given)


def test_static_methods_and_nested_functions_are_tasks() -> None:
    def nested(self: int) -> int:
        return self

    assert App().task(nested).fn(3) == 3
    assert App().task(Mailer.check).fn("ada") == "ada"
    assert (Mailer.above.name, Mailer.above.kind, Mailer.above.fn("ada")) == ("above", "thread", "ada")
    assert (Mailer.below.kind, Mailer.coroutine.kind) == ("process", "async")
