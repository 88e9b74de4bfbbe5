"""Groups of commands that suggest the nearest command for a misspelled one."""

from __future__ import annotations

import click

from lapis.config import nearest


class Commands(click.Group):
    """A group whose error for an unknown command suggests one; click itself does so in some versions only."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-") and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            ctx.fail(f"there is no command {word!r}; {nearest(word, known)}commands: {', '.join(known)}")
        return super().resolve_command(ctx, args)
