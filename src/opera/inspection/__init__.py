"""What a data set is like before any training, and which method it calls for."""

from opera.inspection.look import Inspection, inspect
from opera.inspection.text import print_inspection

__all__ = ["Inspection", "inspect", "print_inspection"]
