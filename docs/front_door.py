"""An extension of griffe, which reads docstrings for the site: what a package re-exports wins over its own modules.

`dynax.io.load` is a function to users, and the module it stands in to griffe.
"""

from __future__ import annotations

import griffe


class FrontDoor(griffe.Extension):
    """Where a package and one of its modules give the same name, takes the function, as Python does."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_) -> None:
        loader.resolve_aliases(implicit=True, external=False)  # before modules go out of sight
        packages = [pkg, *(member for member in pkg.members.values() if not member.is_alias and member.is_module)]
        for package in packages:
            for name, member in list(package.members.items()):
                if member.is_alias and not member.resolved:  # of another package
                    continue
                target = member.final_target if member.is_alias else member
                if target.is_module and not target.is_init_module and name in target.members:
                    package.set_member(name, griffe.Alias(name, target.members[name], parent=package))
