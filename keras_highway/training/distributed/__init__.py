"""Devices, processes, and the signals that stop and restart them."""
