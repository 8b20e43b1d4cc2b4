"""Policies as ONNX files, for machines without Python."""
