"""One check a file: each turns what it sees into findings. None knows another check or how findings are printed."""
