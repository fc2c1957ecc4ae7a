"""The old place of :mod:`opera.core.processes`."""

from opera.core.processes import cached_by_all as cached_by_all
from opera.core.processes import everywhere as everywhere
from opera.core.processes import from_main as from_main
from opera.core.processes import own_share as own_share
from opera.core.processes import process_count as process_count
from opera.core.processes import process_index as process_index
from opera.core.processes import shares as shares
