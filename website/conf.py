"""Settings of Sphinx."""

from importlib.metadata import version as version_of

project = "nsys-pp"
version = release = version_of("nsys-pp")
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"nsys-pp {version}"
html_copy_source = False  # the sources of a page are on the forge
html_show_copyright = False
html_last_updated_fmt = None  # the same sources make the same pages
root_doc = "index"
nitpicky = True
myst_heading_anchors = 4  # as on the forge: links to headings
myst_enable_extensions = ["deflist"]
