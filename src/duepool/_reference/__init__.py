"""The reference engine: the same structures and names as ``duepool._core``, in plain Python.

It is the oracle of the tests, the fallback where nothing compiled is installed, and the baseline
of the benchmarks. It is written to be read: where it could be faster or plainer, it is plainer.
"""
