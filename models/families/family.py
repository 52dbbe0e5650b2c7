"""A model family: how a checkpoint was taught to be asked, and to write actions and coordinates.

Acting and training ask the same family, so that a policy is trained on what it is asked and as it answers. What no
policy of the family generated (demonstrations, preferences, corrections) is stored as typed actions, or as text in
thousandths of the screen, and written by the family where it is trained on. A family of your own overrides `write` and
`read`, and `messages` and `reply` where its prompts and replies are other than `Thought: ...` and `Action: ...`.
"""

from collections.abc import Sequence
from dataclasses import replace

from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply, read_completion
from models.families.prompt import SAMPLES, Message, messages_of, question_of, system_text
from models.policy import Context
from models.tiny.tokens import GRID
from schemas.action import Action
from schemas.config.sections import PolicyConfig
from schemas.observation import Observation

Size = tuple[int, int]
"""Width and height of a screen, in pixels."""


class ModelFamily:
    """Coordinates are thousandths of the screen; prompts are `models.families.prompt`'s.

    Args:
        config: the dialect, and how many screens are shown.
    """

    grid: int = 1
    """Thousandths between coordinates that can be told apart."""
    unit = "thousandths of the screen"
    """Of coordinates, as the prompt names it."""

    def __init__(self, config: PolicyConfig) -> None:
        self.dialect: str = config.dialect
        self.history_images = config.history_images
        self.thinks = config.thoughts

    def messages(self, context: Context) -> list[Message]:
        """The chat that a policy is asked to go on with."""
        screen = context.observation
        system = self._system((screen.width, screen.height), context.thinks)
        return messages_of(context, self.history_images, system)

    def question(self, question: str, screens: Sequence[Observation], acts: bool = False) -> list[Message]:
        """The chat that asks something about screens outside of any trajectory, answered in words or by an action."""
        return question_of(question, screens, self._system((screens[-1].width, screens[-1].height)) if acts else "")

    def write(self, action: Action, screen: Size) -> str:
        """The action as the model writes it on a screen of this size."""
        return format_action(action, self.dialect, self.grid)

    def read(self, completion: Completion, screen: Size) -> Completion:
        """The completion with thought and action of its text; never raises for what a model may write."""
        return read_completion(completion)

    def reply(self, thought: str, action: Action, screen: Size) -> str:
        """A whole reply as the model writes it: without the thought where it is not asked to think."""
        return format_reply(thought if self.thinks else "", self.write(action, screen))

    def rewrite(self, reply: str, screen: Size) -> str:
        """A reply that is stored as text in thousandths of the screen; one without an action stays as it is."""
        read = parse_reply(reply)
        return reply if read.action is None else self.reply(read.thought, read.action, screen)

    def _system(self, screen: Size, thinks: bool = True) -> str:
        return system_text([self.write(action, screen) for action in SAMPLES], self.unit, thinks)


class TinyFamily(ModelFamily):
    """The small policy: its tokens tell fewer places apart, and it reads no system turn."""

    grid = GRID

    def messages(self, context: Context) -> list[Message]:
        """As `ModelFamily.messages`; how the reply is to begin is told with the instruction."""
        return super().messages(replace(context, instruction=self.asked(context.instruction, context.thinks)))

    @staticmethod
    def asked(instruction: str, thinks: bool) -> str:
        """The instruction as it is read: where no thought is asked for it ends as such a reply begins."""
        return instruction if thinks else f"{instruction}\n{format_reply('', '')}"


class PixelFamily(ModelFamily):
    """Models on Qwen2.5-VL: coordinates are pixels of the screen as `smart_resize` leaves it."""

    unit = "pixels"

    def write(self, action: Action, screen: Size) -> str:
        """As `ModelFamily.write`, in pixels."""
        return format_action(action, self.dialect, absolute=screen)

    def read(self, completion: Completion, screen: Size) -> Completion:
        """As `ModelFamily.read`, from pixels."""
        return read_completion(completion, screen)
