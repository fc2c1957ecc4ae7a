"""Which model, which run, which data: what is cached, resumed, reused or compared asks this room.

A data set answers for itself: :attr:`opera.data.RetrievalData.fingerprint` is a hash of its
contents.
"""
