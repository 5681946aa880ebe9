"""Output schemas: code from strangers, made into verdicts that are right, bounded, and never late.

A schema is checked when it is dispatched: every keyword is enforced, is annotation by its draft's own word, or is refused by
name. Nothing is fetched. A result is judged exactly (`values`), and in bounded steps.

One small interpreter of our own does all of it: a schema becomes a net of nodes (`compiling`, over `sites`), each with the
checks that are left to do for each kind of value (`nodes`). It knows three drafts whole, tells the exact path and rule,
counts its steps, and compiles a schema in the time that a code generator takes to begin. `fastjsonschema`, which generates
Python, is not on this path, for it costs more than it gives: 2 to 18 ms to compile what takes 0.2 to 1 ms here, so that no
schema could be checked on the event loop; at best half the time for a large plain result; draft 7 only, with newer keywords
passed in silence; and no bound on its steps. The tests use it as a second opinion where its words are enough.

Pure: what is plainly cheap is done on the event loop (`dhpd.server.output_schemas`); all else, every pattern among it, in
`dhpd.sandbox`. Import what you need from the modules: the sandbox loads no more than it must.
"""
