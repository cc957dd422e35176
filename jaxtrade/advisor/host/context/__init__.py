"""What a question shows beside the bar itself: texts of earlier bars, the advisor's record, news
and events. No JAX.
"""
