"""Learn: data, algorithms, engines, planning, parallel, checkpoint, the trainer's process."""

from schemas.heap import look_seldom

look_seldom()
