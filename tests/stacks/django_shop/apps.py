from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "stacks.django_shop"
    label = "shop"
