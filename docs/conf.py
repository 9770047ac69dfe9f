"""Sphinx's settings for the site; `python scripts/website.py` builds it."""

from puregraph.core.version import __version__

project = "puregraph"
release = __version__
copyright = "the authors of puregraph"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"puregraph {__version__}"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
python_display_short_literal_types = True
html_static_path = ["static"]
html_extra_path = ["extra"]  # copied as they are: pages name pictures by their address
html_css_files = ["site.css"]
