"""``opera push``."""

from __future__ import annotations

from typing import Annotated

import typer

from opera.cli.options import LanguageOption, PublicOption, listed
from opera.core.paths import expand_user
from opera.core.terminal import say


def push(
    model: Annotated[
        str,
        typer.Argument(
            help="a run, or a folder of opera export",
            metavar="RUN|FOLDER",
            parser=lambda text: expand_user(text, "RUN|FOLDER"),
        ),
    ],
    name: Annotated[str, typer.Argument(help="the repository", metavar="OWNER/NAME")],
    public: PublicOption = False,
    language: LanguageOption = None,
) -> None:
    """Upload a model and its card to the Hugging Face Hub, to a private repository unless --public
    is given.
    """
    from opera.retrieval.locate import locate_model

    locate_model(model)

    from opera.deployment.push import push as push_model

    say(push_model(model, name, public=public, language=listed(language or "")))
