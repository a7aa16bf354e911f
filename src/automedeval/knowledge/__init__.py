"""Knowledge: reference books cut into passages, and the store in which they are searched (paper, section 3.1, Table 6).

Who reads the passages, a teacher, a judge or a checker, is for the rooms above.
"""
