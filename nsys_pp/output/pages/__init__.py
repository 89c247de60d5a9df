"""Pages about runs as one HTML file without network access: of one run (`report`), and of two (`comparison`).

A page is a list of sections. Bars are plain SVG, written here: they need no script, print as they are, and a
row of rectangles takes less than a library would. The heat map is a canvas, as a thousand ranks would be too
many rectangles for a browser. Charts of steps are the pages of `nsys_pp.output.chart`, each in a frame of its
own; their scripts are in the page once, deflated.
"""
