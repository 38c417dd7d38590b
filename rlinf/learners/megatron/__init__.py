"""The megatron-core learner: tensor, pipeline and data parallel. The only package that imports megatron.

Every module that needs megatron imports :mod:`rlinf.learners.megatron.cpu` first: on a machine without CUDA
the import hook has to be in force before megatron-core is read.
"""
