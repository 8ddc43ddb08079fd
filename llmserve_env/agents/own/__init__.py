"""Agents of your own: Python files and modules, ONNX and safetensors policies, and policy services over HTTP."""
