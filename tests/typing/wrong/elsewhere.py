from stepwell import App

app = App("embedded")


@app.task
def add(x: int, y: int) -> int:
    return x + y


add.delay(1, 2)  # error
add.apply_async((1, 2))  # error
add.using(priority=1).send(1, 2)  # error
print(add.no_such_name)  # error
