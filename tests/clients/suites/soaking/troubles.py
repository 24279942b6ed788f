"""Troubles of the members of a replica set: kills, stops, restarts, partitions of every shape, and full disks. Each ends by itself."""

from harness.partitions import isolated
from pymongo.errors import PyMongoError


class Troubles:
    """Makes troubles at random. `network` is between the members; `disks`, by their numbers, are empty if none can be mounted."""

    def __init__(self, replica_set, network, disks, source, say):
        self.replica_set, self.network, self.disks, self.source, self.say = replica_set, network, disks, source, say
        self.kinds = [
            self.kill_primary, self.kill_secondary, self.kill_two, self.kill_all, self.pause_primary, self.pause_secondary,
            self.pause_two, self.restart_primary, self.step_down, self.cut_off_primary, self.cut_off_primary_one_way,
            self.cut_off_secondary, self.cut_off_secondary_one_way, self.cut_pair, self.cut_pair_one_way, self.cut_all,
        ]
        if disks:
            self.kinds += [self.fill_disk_of_primary, self.fill_disk_of_secondary, self.kill_on_full_disk]
        self.order = []

    def next(self, stopping):
        """Makes the next trouble, each kind before one comes again, and waits until it is over."""
        if not self.order:
            self.order = self.source.sample(self.kinds, len(self.kinds))
        kind = self.order.pop()
        self.say(kind.__name__.replace("_", " "))
        kind(stopping)
        self.network.heal(self.source.random() < 0.5)
        for disk in self.disks.values():
            disk.make_room()
        for member in self.replica_set.members:
            if member.is_paused:
                member.resume()
            self._start(member)
        self.replica_set.wait_until_steady()

    def _while(self, stopping):
        """Lets it last for a time, in which an election may happen or not."""
        stopping.wait(self.source.uniform(0.3, 5))

    def _primary(self):
        try:
            return self.replica_set.find_primary() or self.source.choice(self.replica_set.members)
        except PyMongoError:
            return self.source.choice(self.replica_set.members)

    def _secondary(self):
        return self.source.choice(self.replica_set.others(self._primary()))

    def _start(self, member):
        if not member.is_running:
            member.start()
            self.network.connect(self.replica_set.members)

    def _kill(self, members, stopping):
        for member in members:
            member.kill()
        self._while(stopping)

    def kill_primary(self, stopping):
        self._kill([self._primary()], stopping)

    def kill_secondary(self, stopping):
        self._kill([self._secondary()], stopping)

    def kill_two(self, stopping):
        self._kill(self.source.sample(self.replica_set.members, 2), stopping)

    def kill_all(self, stopping):
        self._kill(self.source.sample(self.replica_set.members, 3), stopping)

    def fill_disk_of_primary(self, stopping):
        self.disks[self._primary().number].fill()
        self._while(stopping)

    def fill_disk_of_secondary(self, stopping):
        self.disks[self._secondary().number].fill()
        self._while(stopping)

    def kill_on_full_disk(self, stopping):
        """The member starts while its disk is still full."""
        member = self.source.choice(self.replica_set.members)
        self.disks[member.number].fill()
        self._while(stopping)
        member.kill()
        self._while(stopping)
        self._start(member)
        self._while(stopping)

    def restart_primary(self, stopping):
        self._primary().stop()

    def step_down(self, stopping):
        try:
            self._primary().command("replSetStepDown", 1)
        except PyMongoError:
            # No other member may have caught up in time.
            pass

    def _pause(self, members, stopping):
        for member in members:
            member.pause()
        self._while(stopping)

    def pause_primary(self, stopping):
        self._pause([self._primary()], stopping)

    def pause_secondary(self, stopping):
        self._pause([self._secondary()], stopping)

    def pause_two(self, stopping):
        self._pause(self.source.sample(self.replica_set.members, 2), stopping)

    def _cut(self, pairs, stopping):
        self.network.cut(pairs)
        self._while(stopping)

    def _cut_off(self, member, stopping, **ways):
        others = [other.number for other in self.replica_set.others(member)]
        self._cut(isolated(member.number, others, **ways), stopping)

    def cut_off_primary(self, stopping):
        self._cut_off(self._primary(), stopping)

    def cut_off_primary_one_way(self, stopping):
        to = self.source.random() < 0.5
        self._cut_off(self._primary(), stopping, to=to, back=not to)

    def cut_off_secondary(self, stopping):
        self._cut_off(self._secondary(), stopping)

    def cut_off_secondary_one_way(self, stopping):
        to = self.source.random() < 0.5
        self._cut_off(self._secondary(), stopping, to=to, back=not to)

    def cut_pair(self, stopping):
        a, b = (member.number for member in self.source.sample(self.replica_set.members, 2))
        self._cut({(a, b), (b, a)}, stopping)

    def cut_pair_one_way(self, stopping):
        a, b = (member.number for member in self.source.sample(self.replica_set.members, 2))
        self._cut({(a, b)}, stopping)

    def cut_all(self, stopping):
        numbers = [member.number for member in self.replica_set.members]
        self._cut({(a, b) for a in numbers for b in numbers if a != b}, stopping)
