"""From the bytes of a body to checked requests for the router. Everything wrong is an InvalidRequestError.

What a value may be is the router's to say; here is checked what only HTTP can get wrong: the shape of the body, numbers
that the protocol cannot carry, parameters that are not supported, and how much one HTTP request may ask for.
"""
