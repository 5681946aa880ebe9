"""What `dhp top` shows, from the daemon's answers to lines on a screen.

`gathering` asks (little, of however much there is), `picture` makes facts of the answers, `layout` and `table` make lines of the
facts, `command` draws them again and again. The middle ones are pure.
"""
