"""A tabletop of primitive shapes with goals in language: the simulator that needs nothing but numpy.

One arm tip moves over a table seen from above and pushes what it meets. The module `world` is the physics,
`view` the camera, `tasks` the goals and when they are reached, `expert` a scripted demonstrator, `env` the
gymnasium environment.
"""
