"""Lapis in other people's tools: one or a few modules per tool, whose package is an optional extra.

`onnx_export` writes a deployed network as a file for ONNX runtimes, `onnx_run` runs that file in ONNX Runtime.
`transformers` gives ViT, DeiT, BEiT and DINOv2 of Hugging Face transformers Laplacian attention.
"""
