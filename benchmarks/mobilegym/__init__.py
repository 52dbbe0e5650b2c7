"""Compare our phones with MobileGym's own runner, on scripted solutions of its tasks."""
