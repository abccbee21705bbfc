"""To see robots: in a browser, as pictures and films."""

from dynax.viz.forces import contact_forces as contact_forces
from dynax.viz.raster import Camera as Camera
from dynax.viz.render import render as render
from dynax.viz.to_meshcat import show_in_meshcat as show_in_meshcat
from dynax.viz.to_rerun import log_to_rerun as log_to_rerun
from dynax.viz.viewer import Viewer as Viewer
from dynax.viz.viewer import view as view
