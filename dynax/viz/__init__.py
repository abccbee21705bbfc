"""To see robots: in a browser, as pictures and films."""

from dynax.viz.forces import contact_forces as contact_forces
from dynax.viz.raster import Camera as Camera
from dynax.viz.render import render as render
from dynax.viz.viewer import Viewer as Viewer
from dynax.viz.viewer import view as view
