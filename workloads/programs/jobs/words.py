"""Counts words and sorts them by how often they are there: dictionaries, strings, objects."""
import sys
from collections import defaultdict


class Word:
    def __init__(self, text):
        self.text, self.times, self.places = text, 0, []

    def seen(self, place):
        self.times += 1
        if len(self.places) < 8:
            self.places.append(place)


words = {}
by_length = defaultdict(int)
with open(sys.argv[1]) as file:
    for number, line in enumerate(file):
        for text in line.split():
            words.setdefault(text, Word(text)).seen(number)
            by_length[len(text)] += 1
most = sorted(words.values(), key=lambda word: (-word.times, word.text))
print(len(words), most[0].text, most[0].times, sum(sum(word.places) for word in most), dict(by_length))
