"""`confide device`: its commands, which are too much for one module."""

from __future__ import annotations

from confide_proxy.cli.device_confirm import device_confirm
from confide_proxy.cli.device_removal import device_rm
from confide_proxy.cli.devices import device_app

device_app.command("confirm")(device_confirm)
device_app.command("rm", epilog="confide device rm phone")(device_rm)
