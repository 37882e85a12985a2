"""The requests by which a device decides which programs reach its space by HTTP (PROTOCOL.md 9.7)."""

from typing import Annotated, Final, NotRequired, TypedDict

from confide_memory.forms import MAX_DAYS, Moment, Shown, count, each, items, optional, text
from confide_memory.wire.operation import Nothing, Operation
from confide_memory.wire.sealing import GatewayScope

MAX_GRANTED_PROJECTS: Final = 256
MAX_GRANTED_DAYS: Final = 3650
"""Longest access of a program that reaches the space by HTTP."""


class SignInRequest(TypedDict):
    words: str


class SignIn(TypedDict):
    application: Shown
    registered: bool
    redirect: Shown
    scope: GatewayScope
    expires: Moment


class ApproveRequest(SignInRequest):
    name: NotRequired[Annotated[str, optional(text, "")]]
    scope: GatewayScope
    projects: NotRequired[Annotated[list[str] | None, optional(items(MAX_GRANTED_PROJECTS, each(text)))]]
    trusted: NotRequired[bool]
    days: Annotated[int, count(MAX_GRANTED_DAYS, least=1)]


class SignInApproval(TypedDict):
    scope: GatewayScope
    days: NotRequired[Annotated[int | None, optional(count(MAX_DAYS))]]


EndRequest = TypedDict("EndRequest", {"name": str})


SIGN_IN: Final = Operation("sign-in", SignInRequest, SignIn)
SIGN_IN_APPROVE: Final = Operation("sign-in-approve", ApproveRequest, SignInApproval)
GATEWAY_END: Final = Operation("gateway-end", EndRequest, Nothing)
