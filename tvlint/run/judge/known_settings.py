"""Configurations with what comments of their file and the project say of them."""

from __future__ import annotations

from tvlint.frameworks.kin import DISTINCT
from tvlint.ir.configuration import Configuration, Setting
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.document import Document
from tvlint.run.project.project_file import Project
from tvlint.run.project.world_size import Stated, lacks_world_size, nearest


def as_known(document: Document, comments: Stated, project: Project) -> list[Configuration]:
    """Return the configurations of a file with what its comments and the project say of them."""
    return [as_project_says(as_stated(configuration, comments), project) for configuration in document.configurations]


def as_stated(configuration: Configuration, comments: Stated) -> Configuration:
    """Return the configuration with the world size that a comment states, where it does not itself say one."""
    comment = nearest(comments.settings, configuration)
    if comment is None or not lacks_world_size(configuration):
        return configuration
    return replace(configuration, settings={**configuration.settings, "world_size": comment})


def as_project_says(configuration: Configuration, project: Project) -> Configuration:
    """Return the configuration with what only the project knows: its framework and, where the file does not say, the world
    size.
    """
    distinct = bool({project.framework, configuration.framework} & DISTINCT) or configuration.format == "python-recipe"
    meant = not project.framework or not distinct or project.framework == configuration.framework
    framework = project.framework if project.framework and meant else configuration.framework
    version = project.version if project.version and meant else configuration.version
    settings = configuration.settings
    if project.world_size is not None and lacks_world_size(configuration):
        location = project.world_size_location or Location(project.path)
        given = Setting("world_size", project.world_size, "world-size", location, location)
        settings = {**settings, "world_size": given}
    return replace(configuration, framework=framework, version=version, settings=settings)
