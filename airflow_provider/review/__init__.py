"""An expert's review of an assessment: what to ask, how to ask it, what became of the answers."""
