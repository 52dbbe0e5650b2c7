/* Chance and words. All of a page follows from its seed; a tenth of all words, by their hash, is only in pages for tests. */
"use strict";

/* FNV-1a, 32 bits. */
const hash = (text) => {
  let value = 0x811c9dc5;
  for (const one of text) value = Math.imul(value ^ one.codePointAt(0), 0x01000193);
  return value >>> 0;
};
const HELD_OUT_OF = 10;
const isHeldOut = (word) => hash(word.toLowerCase()) % HELD_OUT_OF === 0;

class Chance {
  constructor(text) { this.state = hash(text); }
  /* A number in [0, 1). */
  next() {
    this.state = (this.state + 0x9e3779b9) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 4294967296;
  }
  test(share) { return this.next() < share; }
  /* A whole number from `low` to `high`, both included. */
  int(low, high) { return low + Math.floor(this.next() * (high - low + 1)); }
  pick(list) { return list[Math.floor(this.next() * list.length)]; }
  shuffled(list) {
    const found = [...list];
    for (let at = found.length - 1; at > 0; at--) {
      const other = this.int(0, at);
      [found[at], found[other]] = [found[other], found[at]];
    }
    return found;
  }
  some(list, count) { return this.shuffled(list).slice(0, count); }
}

/* Everyday nouns and adjectives, written for this project. */
const WORDS = `acorn almond anchor ankle apple apron arch autumn badge bagel bakery balcony ballad bamboo banana barley barn
  basil basket beach bead bean bear bell belt bench berry bicycle birch biscuit blanket blossom boat bonnet boot border
  bottle bowl bracelet branch brass bread breeze brick bridge brook broom brush bucket bugle butter button cabin cable
  cactus camel camera canal candle canoe canvas carpet carrot castle cedar ceiling cellar chalk cherry chimney cider
  clay cliff clock cloud clover coast cobalt coconut collar comet compass copper coral cork corner cotton cradle crane
  cricket crow cup curtain cushion daisy dawn desert diamond dinner dolphin donkey door dove drum duck eagle earth
  easel echo elbow elm engine fabric falcon feather fence fern fiddle field fig flag flame flask flute forest fossil
  fountain fox garden garlic gate ginger glacier glass globe glove goat gold goose grain grape grass gravel guitar
  hammer harbour harvest hazel heron hill hinge honey horse island ivory ivy jacket jar jewel juniper kettle kitchen
  kite ladder lagoon lake lantern lavender leather lemon lentil library lily linen lizard lobster loom magnet mango
  maple marble market meadow melon mill mint mirror mitten moose mortar moss mountain museum mustard napkin needle nest
  nettle notebook nutmeg oak oasis oat ocean olive onion orange orchard otter oven owl paddle palace panther paper
  parcel parsley pasture path peach pearl pebble pelican pencil pepper piano pigeon pillow pine planet plaster plate
  plum pocket pond poppy porch potato pottery puddle pumpkin quarry quilt quince rabbit radish raft rain raven reed
  ribbon rice river robin rocket roof rope rose rudder rye saddle saffron sail salmon sand sandal satin saucer scarf
  seed shadow shell shelf shovel silk silver sketch sleeve snail snow soap sparrow spice spoon spring spruce squirrel
  stable stamp statue stone storm stove straw sugar summer sunset swan syrup table tailor tea temple thimble thistle
  thread thunder tiger timber tomato torch tower trail tulip tunnel turnip turtle umbrella valley vanilla velvet village
  vine violet violin waffle wagon walnut water whale wheat wheel whistle willow window winter wolf wood wool yarn yew
  zebra zinc amber ample bright brisk calm clear crisp early eager fresh gentle golden hollow humble jolly keen late light
  little local lucky mellow narrow neat new noble pale plain proud quick quiet rapid rare red round royal sharp silent
  simple slow small smooth soft solid steady sunny tall tidy tiny vivid warm wide wild wise young`.split(/\s+/);
const STARTS = ["b", "br", "c", "ch", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "qu", "r",
  "s", "sh", "sl", "st", "t", "th", "tr", "v", "w", "x", "y", "z"];
const MIDDLES = ["a", "e", "i", "o", "u", "ai", "ea", "oo", "ou", "y"];
const ENDS = ["", "", "", "b", "ck", "d", "ff", "g", "l", "m", "n", "nt", "p", "r", "rk", "s", "st", "t", "x", "z"];
/* Rude words, which syllables may make. */
const RUDE = /shit|fu[ckq]|cu[nm]|coc?k|dic?k|tit|nig|fag|slut|piss|rap|sex|poo|crap|whor|tw[ao]t|bitch|damn|hell|nazi|kill/;
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/* The words of one page: those held out, or those that are not; a name is never given twice. */
class Text {
  constructor(chance, heldOut) {
    this.chance = chance;
    this.known = WORDS.filter((word) => isHeldOut(word) === heldOut);
    this.heldOut = heldOut;
    this.given = new Set();
  }
  syllable() { return this.chance.pick(STARTS) + this.chance.pick(MIDDLES) + this.chance.pick(ENDS); }
  spelt() {
    for (;;) {
      const word = Array.from({ length: this.chance.int(1, 3) }, () => this.syllable()).join("");
      if (word.length > 2 && word.length < 11 && isHeldOut(word) === this.heldOut && !RUDE.test(word)) return word;
    }
  }
  word() { return this.chance.test(0.45) ? this.chance.pick(this.known) : this.spelt(); }
  cased(text) {
    const style = this.chance.next();
    if (style < 0.72) return text[0].toUpperCase() + text.slice(1);
    return style < 0.94 ? text : text.toUpperCase();
  }
  /* A name of `count` words at most that is no part of another name of the page. */
  name(count = 2) {
    for (;;) {
      const words = Array.from({ length: this.chance.test(0.65) ? 1 : this.chance.int(1, count) }, () => this.word());
      const found = this.cased(words.join(" ")), plain = found.toLowerCase();
      if ([...this.given].some((one) => one.includes(plain) || plain.includes(one))) continue;
      this.given.add(plain);
      return found;
    }
  }
  names(count, words = 2) { return Array.from({ length: count }, () => this.name(words)); }
  code() {
    const letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghkmnpqrstuvwxyz23456789";
    return Array.from({ length: this.chance.int(4, 7) }, () => this.chance.pick([...letters])).join("");
  }
  number() { return String(this.chance.int(0, 10 ** this.chance.int(1, 4))); }
  price() { return `${this.chance.int(1, 99)}.${this.chance.int(10, 99)}`; }
  day() { return `${this.chance.int(1, 28)} ${this.chance.pick(MONTHS).slice(0, 3)}`; }
  time() { return `${this.chance.int(0, 23)}:${this.chance.pick(["00", "15", "30", "45"])}`; }
  mail() { return `${this.spelt()}@${this.spelt()}.example`; }
  /* A text to type. */
  value() {
    const kind = this.chance.next();
    if (kind < 0.5) return this.word();
    if (kind < 0.65) return `${this.word()} ${this.word()}`;
    if (kind < 0.75) return this.number();
    if (kind < 0.85) return this.code();
    return kind < 0.93 ? this.mail() : `${this.word()}-${this.chance.int(2, 99)}`;
  }
  sentence(words) {
    const found = Array.from({ length: words }, () => this.chance.test(0.06) ? this.number() : this.word());
    if (words > 5 && this.chance.test(0.4)) found[this.chance.int(1, 3)] += ",";
    const text = found.join(" ");
    return text[0].toUpperCase() + text.slice(1) + this.chance.pick([".", ".", ".", "!", "?", ""]);
  }
}
